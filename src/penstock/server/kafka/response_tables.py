"""The responses of Kafka that the server speaks, by tools/kafka_tables.py. `schema` says how to read it."""

RESPONSES = """
AddPartitionsToTxn 24 0-3 flexible=3
 throttle_time_ms int32
 results_by_topic_v3and_below []struct
  name string
  results_by_partition []struct
   partition_index int32
   partition_error_code int16
AddOffsetsToTxn 25 0-3 flexible=3
 throttle_time_ms int32
 error_code int16
EndTxn 26 0-3 flexible=3
 throttle_time_ms int32
 error_code int16
TxnOffsetCommit 28 0-3 flexible=3
 throttle_time_ms int32
 topics []struct
  name string
  partitions []struct
   partition_index int32
   error_code int16
Produce 0 3-12 flexible=9
 responses []struct
  name string
  partition_responses []struct
   index int32
   error_code int16
   base_offset int64
   log_append_time_ms int64 default=-1
   log_start_offset int64 5-12 default=-1
   record_errors []struct 8-12
    batch_index int32 8-12
    batch_index_error_message string 8-12 nullable=8 default=null
   error_message string 8-12 nullable=8 default=null
   current_leader struct 10-12 tag=0
    leader_id int32 10-12 default=-1
    leader_epoch int32 10-12 default=-1
 throttle_time_ms int32
 node_endpoints []struct 10-12 tag=0
  node_id int32 10-12
  host string 10-12
  port int32 10-12
  rack string 10-12 nullable=10 default=null
Fetch 1 4-12 flexible=12
 throttle_time_ms int32
 error_code int16 7-12
 session_id int32 7-12
 responses []struct
  topic string
  partitions []struct
   partition_index int32
   error_code int16
   high_watermark int64
   last_stable_offset int64 default=-1
   log_start_offset int64 5-12 default=-1
   diverging_epoch struct 12-12 tag=0
    epoch int32 12-12 default=-1
    end_offset int64 12-12 default=-1
   current_leader struct 12-12 tag=1
    leader_id int32 12-12 default=-1
    leader_epoch int32 12-12 default=-1
   snapshot_id struct 12-12 tag=2
    end_offset int64 default=-1
    epoch int32 default=-1
   aborted_transactions []struct nullable=4
    producer_id int64
    first_offset int64
   preferred_read_replica int32 11-12 default=-1
   records records nullable=4
ListOffsets 2 1-7 flexible=6
 throttle_time_ms int32 2-7
 topics []struct
  name string
  partitions []struct
   partition_index int32
   error_code int16
   timestamp int64 default=-1
   offset int64 default=-1
   leader_epoch int32 4-7 default=-1
Metadata 3 0-12 flexible=9
 throttle_time_ms int32 3-12
 brokers []struct
  node_id int32
  host string
  port int32
  rack string 1-12 nullable=1 default=null
 cluster_id string 2-12 nullable=2 default=null
 controller_id int32 1-12 default=-1
 topics []struct
  error_code int16
  name string nullable=12
  topic_id uuid 10-12
  is_internal bool 1-12
  partitions []struct
   error_code int16
   partition_index int32
   leader_id int32
   leader_epoch int32 7-12 default=-1
   replica_nodes []int32
   isr_nodes []int32
   offline_replicas []int32 5-12
  topic_authorized_operations int32 8-12 default=-2147483648
 cluster_authorized_operations int32 8-10 default=-2147483648
OffsetCommit 8 2-9 flexible=8
 throttle_time_ms int32 3-9
 topics []struct
  name string
  partitions []struct
   partition_index int32
   error_code int16
OffsetFetch 9 1-9 flexible=6
 throttle_time_ms int32 3-9
 topics []struct 1-7
  name string 1-7
  partitions []struct 1-7
   partition_index int32 1-7
   committed_offset int64 1-7
   committed_leader_epoch int32 5-7 default=-1
   metadata string 1-7 nullable=1
   error_code int16 1-7
 error_code int16 2-7
 groups []struct 8-9
  group_id string 8-9
  topics []struct 8-9
   name string 8-9
   partitions []struct 8-9
    partition_index int32 8-9
    committed_offset int64 8-9
    committed_leader_epoch int32 8-9 default=-1
    metadata string 8-9 nullable=8
    error_code int16 8-9
  error_code int16 8-9
FindCoordinator 10 0-4 flexible=3
 throttle_time_ms int32 1-4
 error_code int16 0-3
 error_message string 1-3 nullable=1
 node_id int32 0-3
 host string 0-3
 port int32 0-3
 coordinators []struct 4-4
  key string 4-4
  node_id int32 4-4
  host string 4-4
  port int32 4-4
  error_code int16 4-4
  error_message string 4-4 nullable=4
JoinGroup 11 0-9 flexible=6
 throttle_time_ms int32 2-9
 error_code int16
 generation_id int32 default=-1
 protocol_type string 7-9 nullable=7 default=null
 protocol_name string nullable=7
 leader string
 skip_assignment bool 9-9
 member_id string
 members []struct
  member_id string
  group_instance_id string 5-9 nullable=5 default=null
  metadata bytes
Heartbeat 12 0-4 flexible=4
 throttle_time_ms int32 1-4
 error_code int16
LeaveGroup 13 0-5 flexible=4
 throttle_time_ms int32 1-5
 error_code int16
 members []struct 3-5
  member_id string 3-5
  group_instance_id string 3-5 nullable=3
  error_code int16 3-5
SyncGroup 14 0-5 flexible=4
 throttle_time_ms int32 1-5
 error_code int16
 protocol_type string 5-5 nullable=5 default=null
 protocol_name string 5-5 nullable=5 default=null
 assignment bytes
DescribeGroups 15 0-5 flexible=5
 throttle_time_ms int32 1-5
 groups []struct
  error_code int16
  group_id string
  group_state string
  protocol_type string
  protocol_data string
  members []struct
   member_id string
   group_instance_id string 4-5 nullable=4 default=null
   client_id string
   client_host string
   member_metadata bytes
   member_assignment bytes
  authorized_operations int32 3-5 default=-2147483648
ListGroups 16 0-4 flexible=3
 throttle_time_ms int32 1-4
 error_code int16
 groups []struct
  group_id string
  protocol_type string
  group_state string 4-4
SaslHandshake 17 0-1 flexible=2
 error_code int16
 mechanisms []string
ApiVersions 18 0-4 flexible=3
 error_code int16
 api_keys []struct
  api_key int16
  min_version int16
  max_version int16
 throttle_time_ms int32 1-4
 supported_features []struct 3-4 tag=0
  name string 3-4
  min_version int16 3-4
  max_version int16 3-4
 finalized_features_epoch int64 3-4 tag=1 default=-1
 finalized_features []struct 3-4 tag=2
  name string 3-4
  max_version_level int16 3-4
  min_version_level int16 3-4
 zk_migration_ready bool 3-4 tag=3
CreateTopics 19 2-7 flexible=5
 throttle_time_ms int32
 topics []struct
  name string
  topic_id uuid 7-7
  error_code int16
  error_message string nullable=2
  topic_config_error_code int16 5-7 tag=0
  num_partitions int32 5-7 default=-1
  replication_factor int16 5-7 default=-1
  configs []struct 5-7 nullable=5
   name string 5-7
   value string 5-7 nullable=5
   read_only bool 5-7
   config_source int8 5-7 default=-1
   is_sensitive bool 5-7
DeleteTopics 20 1-6 flexible=4
 throttle_time_ms int32
 responses []struct
  name string nullable=6
  topic_id uuid 6-6
  error_code int16
  error_message string 5-6 nullable=5 default=null
DeleteRecords 21 0-2 flexible=2
 throttle_time_ms int32
 topics []struct
  name string
  partitions []struct
   partition_index int32
   low_watermark int64
   error_code int16
InitProducerId 22 0-4 flexible=2
 throttle_time_ms int32
 error_code int16
 producer_id int64 default=-1
 producer_epoch int16
OffsetForLeaderEpoch 23 2-4 flexible=4
 throttle_time_ms int32
 topics []struct
  topic string
  partitions []struct
   error_code int16
   partition int32
   leader_epoch int32 default=-1
   end_offset int64 default=-1
DescribeConfigs 32 1-4 flexible=4
 throttle_time_ms int32
 results []struct
  error_code int16
  error_message string nullable=1
  resource_type int8
  resource_name string
  configs []struct
   name string
   value string nullable=1
   read_only bool
   config_source int8 default=-1
   is_sensitive bool
   synonyms []struct
    name string
    value string nullable=1
    source int8
   config_type int8 3-4
   documentation string 3-4 nullable=1
AlterConfigs 33 0-2 flexible=2
 throttle_time_ms int32
 responses []struct
  error_code int16
  error_message string nullable=0
  resource_type int8
  resource_name string
SaslAuthenticate 36 0-2 flexible=2
 error_code int16
 error_message string nullable=0
 auth_bytes bytes
 session_lifetime_ms int64 1-2
CreatePartitions 37 0-3 flexible=2
 throttle_time_ms int32
 results []struct
  name string
  error_code int16
  error_message string nullable=0 default=null
DeleteGroups 42 0-2 flexible=2
 throttle_time_ms int32
 results []struct
  group_id string
  error_code int16
IncrementalAlterConfigs 44 0-1 flexible=1
 throttle_time_ms int32
 responses []struct
  error_code int16
  error_message string nullable=0
  resource_type int8
  resource_name string
DescribeCluster 60 0-1 flexible=0
 throttle_time_ms int32
 error_code int16
 error_message string nullable=0 default=null
 endpoint_type int8 1-1 default=1
 cluster_id string
 controller_id int32 default=-1
 brokers []struct
  broker_id int32
  host string
  port int32
  rack string nullable=0 default=null
 cluster_authorized_operations int32 default=-2147483648
ConsumerGroupHeartbeat 68 0-1 flexible=0
 throttle_time_ms int32
 error_code int16
 error_message string nullable=0 default=null
 member_id string nullable=0 default=null
 member_epoch int32
 heartbeat_interval_ms int32
 assignment struct nullable=0 default=null
  topic_partitions []struct
   topic_id uuid
   partitions []int32
ConsumerGroupDescribe 69 0-1 flexible=0
 throttle_time_ms int32
 groups []struct
  error_code int16
  error_message string nullable=0 default=null
  group_id string
  group_state string
  group_epoch int32
  assignment_epoch int32
  assignor_name string
  members []struct
   member_id string
   instance_id string nullable=0 default=null
   rack_id string nullable=0 default=null
   member_epoch int32
   client_id string
   client_host string
   subscribed_topic_names []string
   subscribed_topic_regex string nullable=0 default=null
   assignment struct
    topic_partitions []struct
     topic_id uuid
     topic_name string
     partitions []int32
   target_assignment struct
    topic_partitions []struct
     topic_id uuid
     topic_name string
     partitions []int32
   member_type int8 1-1 default=-1
  authorized_operations int32 default=-2147483648
ShareGroupHeartbeat 76 1-1 flexible=0
 throttle_time_ms int32
 error_code int16
 error_message string nullable=1 default=null
 member_id string nullable=1 default=null
 member_epoch int32
 heartbeat_interval_ms int32
 assignment struct nullable=1 default=null
  topic_partitions []struct
   topic_id uuid
   partitions []int32
ShareGroupDescribe 77 1-1 flexible=0
 throttle_time_ms int32
 groups []struct
  error_code int16
  error_message string nullable=1 default=null
  group_id string
  group_state string
  group_epoch int32
  assignment_epoch int32
  assignor_name string
  members []struct
   member_id string
   rack_id string nullable=1 default=null
   member_epoch int32
   client_id string
   client_host string
   subscribed_topic_names []string
   assignment struct
    topic_partitions []struct
     topic_id uuid
     topic_name string
     partitions []int32
  authorized_operations int32 default=-2147483648
ShareFetch 78 1-1 flexible=0
 throttle_time_ms int32
 error_code int16
 error_message string nullable=1 default=null
 acquisition_lock_timeout_ms int32
 responses []struct
  topic_id uuid
  partitions []struct
   partition_index int32
   error_code int16
   error_message string nullable=1 default=null
   acknowledge_error_code int16
   acknowledge_error_message string nullable=1 default=null
   current_leader struct
    leader_id int32
    leader_epoch int32
   records records
   acquired_records []struct
    first_offset int64
    last_offset int64
    delivery_count int16
 node_endpoints []struct
  node_id int32
  host string
  port int32
  rack string nullable=1 default=null
ShareAcknowledge 79 1-1 flexible=0
 throttle_time_ms int32
 error_code int16
 error_message string nullable=1 default=null
 responses []struct
  topic_id uuid
  partitions []struct
   partition_index int32
   error_code int16
   error_message string nullable=1 default=null
   current_leader struct
    leader_id int32
    leader_epoch int32
 node_endpoints []struct
  node_id int32
  host string
  port int32
  rack string nullable=1 default=null
"""
